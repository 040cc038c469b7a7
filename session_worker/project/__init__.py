"""What a session is told of the place it works in, and the rules for reading there."""
