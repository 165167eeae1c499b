"""Where side effects live: the warehouse, data sources, knowledge bases."""
