// The file of a process id: when it exists, and which files are not removed.
#include "server/daemon/housekeeping.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace gpunbd::server::test {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
    Folder() {
        char pattern[] = "/tmp/gpunbd-pidfileXXXXXX";
        REQUIRE(::mkdtemp(pattern) != nullptr);
        path = pattern;
    }
    ~Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    long files() const {
        return std::distance(fs::directory_iterator(path), fs::directory_iterator());
    }
    std::string path;
};

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string complaint(const std::string& path) {
    try {
        PidFile pidfile(path);
        pidfile.open();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("pidfile: exists from its publication until the end, without other files") {
    const Folder folder;
    const std::string path = folder.path + "/pid";
    {
        PidFile pidfile(path);
        pidfile.open();
        CHECK_FALSE(fs::exists(path));
        pidfile.start();
        CHECK(content(path) == std::to_string(::getpid()) + "\n");
        struct stat status {};
        REQUIRE(::stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0644);
        CHECK(folder.files() == 1);
    }
    CHECK(folder.files() == 0);
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(folder.files() == 0);
}

TEST_CASE("pidfile: an old file is replaced, another server's file stays") {
    const Folder folder;
    const std::string path = folder.path + "/pid";
    std::ofstream(path) << "1\n";
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(content(path) == "1\n");
    {
        PidFile pidfile(path);
        pidfile.open();
        pidfile.start();
        CHECK(content(path) == std::to_string(::getpid()) + "\n");
        std::ofstream(path) << "2\n";
    }
    CHECK(content(path) == "2\n");
}

TEST_CASE("pidfile: paths that cannot be used, with the reasons") {
    const Folder folder;
    CHECK(complaint(folder.path) ==
          "--pidfile " + folder.path + ": exists and is not a regular file; choose another path");
    CHECK(complaint("/dev/null").find("is not a regular file") != std::string::npos);
    CHECK(complaint(folder.path + "/no/pid")
              .find("the folder " + folder.path + "/no does not exist; create it") !=
          std::string::npos);
    std::ofstream(folder.path + "/file") << "x";
    CHECK(complaint(folder.path + "/file/pid").find("/file is not a folder") != std::string::npos);
    CHECK(folder.files() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
