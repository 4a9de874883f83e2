// A folder for files of tests, removed with everything in it.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace gpunbd::storage::test {

class FileFolder {
 public:
    static constexpr const char* on_disk = "/tmp";        // usually with direct I/O
    static constexpr const char* in_memory = "/dev/shm";  // faster

    explicit FileFolder(const std::string& in = on_disk)
        : path_((std::filesystem::is_directory(in) ? in : on_disk) + "/gpunbd-file-XXXXXX") {
        REQUIRE(::mkdtemp(path_.data()) != nullptr);
    }
    ~FileFolder() { std::filesystem::remove_all(path_); }
    FileFolder(const FileFolder&) = delete;
    FileFolder& operator=(const FileFolder&) = delete;

    const std::string& path() const { return path_; }
    std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

}  // namespace gpunbd::storage::test
