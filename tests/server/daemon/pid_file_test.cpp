// The file of a process id: when it exists, and which files are not removed.
#include "server/daemon/housekeeping.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/checked.hpp"
#include "tests/contains.hpp"
#include "tests/temporary_folder.hpp"

namespace gpunbd::server::test {
namespace {

namespace fs = std::filesystem;

using gpunbd::test::TemporaryFolder;

long files_in(const TemporaryFolder& folder) {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

std::string complaint(const std::string& path) {
    return error_of([&] { PidFile(path).open(); });
}

TEST_CASE("pidfile: exists from its publication until the end, without other files") {
    const TemporaryFolder folder;
    const std::string path = folder.path("pid");
    {
        PidFile pidfile(path);
        pidfile.open();
        CHECK_FALSE(fs::exists(path));
        pidfile.start();
        CHECK(folder.read("pid") == std::to_string(::getpid()) + "\n");
        struct stat status {};
        REQUIRE(::stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0644);
        CHECK(files_in(folder) == 1);
    }
    CHECK(files_in(folder) == 0);
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(files_in(folder) == 0);
}

TEST_CASE("pidfile: an old file is replaced, another server's file stays") {
    const TemporaryFolder folder;
    const std::string path = folder.path("pid");
    folder.write("pid", "1\n");
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(folder.read("pid") == "1\n");
    {
        PidFile pidfile(path);
        pidfile.open();
        pidfile.start();
        CHECK(folder.read("pid") == std::to_string(::getpid()) + "\n");
        folder.write("pid", "2\n");
    }
    CHECK(folder.read("pid") == "2\n");
}

TEST_CASE("pidfile: paths that cannot be used, with the reasons") {
    const TemporaryFolder folder;
    CHECK(complaint(folder.path()) ==
          "--pidfile " + folder.path() + ": exists and is not a regular file; choose another path");
    CHECK(contains(complaint("/dev/null"), "is not a regular file"));
    CHECK(contains(complaint(folder.path("no/pid")),
                   "the folder " + folder.path() + "/no does not exist; create it"));
    folder.write("file", "x");
    CHECK(contains(complaint(folder.path("file/pid")), "/file is not a folder"));
    CHECK(files_in(folder) == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
