#include "storage/devices/gpu/gpu_identity.hpp"

#include <fmt/format.h>

namespace gpunbd::storage {

std::string gpu_identity(const std::array<unsigned char, 16>& uuid) {
    std::string text = "GPU-";
    for (std::size_t i = 0; i != uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", uuid[i]);
    }
    return text;
}

}  // namespace gpunbd::storage
