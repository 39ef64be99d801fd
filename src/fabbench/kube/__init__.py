"""Kubernetes: the API, programs in pods, and the objects of a run."""
