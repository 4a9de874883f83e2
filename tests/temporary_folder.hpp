// A folder of a test. Its destructor removes it with its contents.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gpunbd::test {

class TemporaryFolder {
 public:
    explicit TemporaryFolder(const std::string& in = "/tmp") : path_(in + "/gpunbd-test-XXXXXX") {
        REQUIRE(::mkdtemp(path_.data()) != nullptr);
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }
    std::string path(const std::string& name) const { return path_ + "/" + name; }
    // Creates the folders that the file needs, too. Returns the path of the file.
    std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
        const std::filesystem::path file = path(name);
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
        REQUIRE(::chmod(file.c_str(), mode) == 0);
        return file;
    }
    std::string read(const std::string& name) const {
        std::ifstream file(path(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

 private:
    std::string path_;
};

}  // namespace gpunbd::test
