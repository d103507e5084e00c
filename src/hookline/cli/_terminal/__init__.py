"""What a person sees at a terminal: text that is laid out, styled and safe, and questions."""
