"""PostgreSQL's types: names, text forms, Arrow types."""
