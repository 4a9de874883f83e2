// Descriptors of one file that are opened while OpenedFiles watches.
#include "storage/devices/gpu/opened_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

class OpenFile {
 public:
    explicit OpenFile(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}
    ~OpenFile() { ::close(fd_); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

 private:
    int fd_;
};

TEST_CASE("opened files: copies the descriptors of the path that were opened and stay open") {
    const OpenFile before("/dev/zero");
    std::optional<OpenedFiles> opened("/dev/zero");
    const OpenFile another("/dev/null");
    { const OpenFile gone("/dev/zero"); }
    {
        const OpenFile one("/dev/zero");
        const OpenFile two("/dev/zero");
        opened->end();
    }
    REQUIRE(opened->copies().size() == 2);
    for (const OwnedFd& copy : opened->copies()) {
        const int each = copy.get();
        struct stat file {};
        struct stat zero {};
        REQUIRE(::fstat(each, &file) == 0);
        REQUIRE(::stat("/dev/zero", &zero) == 0);
        CHECK(file.st_rdev == zero.st_rdev);
        CHECK((::fcntl(each, F_GETFD) & FD_CLOEXEC) != 0);
    }
    const int copy = opened->copies().front().get();
    opened.reset();
    CHECK(::fcntl(copy, F_GETFD) == -1);
}

TEST_CASE("opened files: an empty path matches no files") {
    OpenedFiles opened("");
    const OpenFile one("/dev/zero");
    opened.end();
    CHECK(opened.copies().empty());
}

}  // namespace
}  // namespace gpunbd::storage::test
