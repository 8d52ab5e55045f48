"""Parts of scripts/make_captures.py: packet builders, capture formats, the golden forwarder and the contents of each capture."""
