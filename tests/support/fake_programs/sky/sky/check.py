"""In SkyPilot this module has the name of the function, too."""
