// A folder for files of tests, removed with everything in it.
#pragma once

#include <filesystem>
#include <string>

#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {

struct FileFolder : gpunbd::test::TemporaryFolder {
    static constexpr const char* on_disk = "/tmp";        // usually with direct I/O
    static constexpr const char* in_memory = "/dev/shm";  // faster

    explicit FileFolder(const std::string& in = on_disk)
        : TemporaryFolder(std::filesystem::is_directory(in) ? in : on_disk) {}
};

}  // namespace gpunbd::storage::test
