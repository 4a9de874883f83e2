#include "server/daemon/pid_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "server/base/create_error.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

std::runtime_error refusal(const std::string& path, const std::string& why) {
    return std::runtime_error(fmt::format("--pidfile {}: {}", path, why));
}

}  // namespace

void PidFile::open() {
    // rename() would also replace a device.
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        throw refusal(path_, "exists and is not a regular file; choose another path");
    }
    std::string draft = path_ + ".XXXXXX";
    const OwnedFd fd(::mkostemp(draft.data(), O_CLOEXEC));
    if (fd.get() < 0) throw refusal(path_, create_error(path_, errno));
    draft_ = draft;
    const std::string text = fmt::format("{}\n", ::getpid());
    constexpr mode_t readable_by_all = 0644;
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fchmod(fd.get(), readable_by_all) != 0) {
        const int error = errno;
        ::unlink(draft_.c_str());
        throw refusal(path_, create_error(path_, error));
    }
}

PidFile::~PidFile() {
    if (!draft_.empty()) {
        ::unlink(draft_.c_str());
        return;
    }
    if (keep_ || !published_) return;
    std::ifstream file(path_);
    pid_t pid = 0;
    if (file >> pid && pid == ::getpid()) ::unlink(path_.c_str());
}

void PidFile::start() {
    GPUNBD_ASSERT(!draft_.empty() && !published_, "the file is published once, after its draft");
    if (::rename(draft_.c_str(), path_.c_str()) != 0) {
        throw refusal(path_, create_error(path_, errno));
    }
    draft_.clear();
    published_ = true;
}

}  // namespace gpunbd::server
