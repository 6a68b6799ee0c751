"""Rules tried before they go live: changes as lines of JSON, and what a sink would make of them."""
