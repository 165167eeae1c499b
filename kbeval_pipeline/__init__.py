"""kbeval-pipeline: know every night whether a knowledge base still answers."""
