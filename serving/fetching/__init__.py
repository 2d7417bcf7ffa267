"""Images by URL: which may be fetched, and how it is done without harm."""
