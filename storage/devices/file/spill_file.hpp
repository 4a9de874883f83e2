// The file of a `file:` device: made or verified, locked, and with all its blocks reserved. Its
// contents are never used by a later process.
#pragma once

#include <cstdint>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

class SpillFile {
 public:
    // The first bytes of the file identify it as a spill file. Its contents may be discarded.
    static constexpr std::uint64_t header_bytes = 4096;

    // Reserves `bytes` after the header. Throws DeviceInUse if another process has the file, and
    // std::runtime_error with one line if it cannot be used.
    SpillFile(std::string path, std::uint64_t bytes);
    // Frees the blocks of the file, and removes it if this object made it.
    ~SpillFile();
    SpillFile(const SpillFile&) = delete;
    SpillFile& operator=(const SpillFile&) = delete;

    int descriptor() const { return file_.get(); }
    const std::string& path() const { return path_; }
    bool direct() const { return direct_; }  // without the page cache

 private:
    void open();
    void verify() const;
    void reserve(std::uint64_t bytes);

    std::string path_;
    OwnedFd file_;
    bool created_ = false;
    bool direct_ = false;
};

}  // namespace gpunbd::storage
