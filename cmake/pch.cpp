// Belongs to the targets that carry the precompiled headers.
