"""The documents and questions of the small project that many tests run on."""

DOCUMENTS = {
    "yeast.txt": "Yeast dosage for a rye bread: twelve grams of fresh yeast for one kilogram of flour.",
    "ferry.txt": "The ferry to the island leaves the harbour at seven in the morning and at noon.",
    "glacier.md": "# Glaciers\n\nA glacier is a slowly moving mass of ice that is formed from compacted snow.",
    "invoice.html": "<html><body><p>An invoice is due within thirty days of delivery.</p></body></html>",
    "battery.txt": "A lithium battery is charged at a constant current until its voltage limit is reached.",
}

QUESTIONS = """question,doc_id,answer
How much yeast goes into a kilogram of flour?,yeast.txt,twelve grams
When does the ferry leave the harbour?,ferry.txt,at seven and at noon
What is a glacier formed from?,glacier.md,compacted snow
When is an invoice due?,invoice.html,within thirty days
How is a lithium battery charged?,battery.txt,at a constant current
"""
