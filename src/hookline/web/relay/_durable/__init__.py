"""Durable chats: their lives as one stream."""
