#include "storage/migration/reason_for_staying.hpp"

#include <fmt/format.h>

namespace gpunbd::storage {

std::string reason_for_staying(const Migration& result) {
    if (!result.error.empty()) return result.error;
    if (result.no_room) return "there is no memory left for its pages";
    if (result.failed != 0) return fmt::format("{} pages could not be copied", result.failed);
    if (result.busy != 0) {
        return fmt::format("clients kept writing to {} pages; try again", result.busy);
    }
    return "the exports use no more memory there that can be moved";
}

}  // namespace gpunbd::storage
