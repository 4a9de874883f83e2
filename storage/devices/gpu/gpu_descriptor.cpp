#include "storage/devices/gpu/gpu_descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace gpunbd::storage {

std::string reason_not_gpu_memory(const OwnedFd& descriptor) {
    struct stat facts {};
    if (::fstat(descriptor.get(), &facts) != 0) return std::strerror(errno);
    const bool memory_file = ::fcntl(descriptor.get(), F_GET_SEALS) >= 0;
    const bool known = S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode) ||
                       S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode);
    return memory_file || known ? "it is not GPU memory" : "";
}

}  // namespace gpunbd::storage
