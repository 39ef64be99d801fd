"""SkyPilot itself: its API, its clusters, and files of its tasks."""
