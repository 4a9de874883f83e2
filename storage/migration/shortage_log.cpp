#include "storage/migration/shortage_log.hpp"

#include <fmt/format.h>

#include <utility>

#include "storage/base/log_line.hpp"

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

bool ShortageLog::report(const Device& device, const Migration& result, std::string_view need) {
    if (result.missing() == 0 && result.error.empty()) return false;
    if (std::exchange(is_reported_, true)) return true;
    const DeviceInfo& info = device.info();
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("device", info.id)
            .with("bytes", result.missing())
            .log("{}: {}, and pages stay: {}", info.id, need, reason_for_staying(result));
    });
    return true;
}

}  // namespace gpunbd::storage
