// Finds the descriptors of a file that a library opens without telling its caller.
#pragma once

#include <string>
#include <vector>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

class OpenedFiles {
 public:
    // Starts watching. `path` is as in /proc/self/fd; empty: no file.
    explicit OpenedFiles(std::string path);

    // Stops watching, and copies all new descriptors that are still open. No other thread may open
    // this file meanwhile.
    void end();
    const std::vector<OwnedFd>& copies() const { return copies_; }

 private:
    const std::string path_;
    const std::vector<int> before_;
    std::vector<OwnedFd> copies_;
};

}  // namespace gpunbd::storage
