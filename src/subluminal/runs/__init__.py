"""One run of an agent as a whole: started, watched, recorded, judged. Nothing here draws on a terminal."""
