"""What a run did, for people: read from its folder, drawn, and put on one page."""
