"""The threads of the service, and what is between them."""
