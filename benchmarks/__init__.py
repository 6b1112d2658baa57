"""Commands that produce the project's figures; see the README beside this file."""
