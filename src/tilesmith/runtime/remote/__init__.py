"""Devices that are other machines, on which an agent runs: frames, connections, runners."""
