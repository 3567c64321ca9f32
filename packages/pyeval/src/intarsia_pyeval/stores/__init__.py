"""What models hold: reading it, with what that relies on, and changing it. No rule of Python is here."""
