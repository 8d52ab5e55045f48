"""Parts of scripts/make_captures.py: packet builders, capture formats, the golden forwarder and what goes into each capture."""
