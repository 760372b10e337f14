"""The console: pages for people. A view loads, makes at most one domain call, and renders. A GET changes nothing."""
