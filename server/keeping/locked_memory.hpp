// A keeper that has to wait for its own pages, while memory is short, keeps a server waiting.
#pragma once

namespace gpunbd::server {

// Locks each page that this process has touched, or will, of what it has mapped so far. Says so in
// one line where that is refused.
void lock_memory();

}  // namespace gpunbd::server
