"""The demo: labelled people, two organisations, the worked example, and everything that runs them on one machine."""
