"""What is different from database to database."""
