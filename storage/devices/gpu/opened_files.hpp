// Which descriptors of one file a library opens: it does not tell.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::storage {

class OpenedFiles {
 public:
    // From now on. `path`: as the kernel tells it in /proc/self/fd; empty: of no file.
    explicit OpenedFiles(std::string path);
    ~OpenedFiles();
    OpenedFiles(const OpenedFiles&) = delete;
    OpenedFiles& operator=(const OpenedFiles&) = delete;

    // Until now: takes a copy of each that is still open. Only one thread may open this file
    // meanwhile.
    void end();
    const std::vector<int>& copies() const { return copies_; }

 private:
    const std::string path_;
    const std::vector<int> before_;
    std::vector<int> copies_;  // owned
};

}  // namespace gpunbd::storage
