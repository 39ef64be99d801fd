"""Kubernetes without a cluster: what its API's objects say, and the objects of a run. Pure.

Objects are plain mappings in the API's own JSON form (`kubectl get -o json`), in and out.
"""
