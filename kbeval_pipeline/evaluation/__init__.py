"""Pure evaluation logic: frames and dataclasses in, frames and dataclasses out."""
