"""Proxies: doors that listen."""
