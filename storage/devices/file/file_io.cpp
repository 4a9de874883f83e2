#include "storage/devices/file/file_io.hpp"

#include <cerrno>

namespace gpunbd::storage {

bool FileIo::ended(std::int64_t result) {
    // ECANCELED: the kernel could not start a thread that writes.
    if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) return false;
    if (result <= 0) {
        error = result == 0 ? EIO : static_cast<int>(-result);  // 0: the file has been truncated
        return true;
    }
    done += static_cast<std::uint32_t>(result);
    error = 0;
    return done >= bytes;
}

}  // namespace gpunbd::storage
