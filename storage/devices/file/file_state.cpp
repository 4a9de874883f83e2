#include "storage/devices/file/file_state.hpp"

#include <chrono>
#include <cstring>

#include "storage/base/log_line.hpp"

namespace gpunbd::storage {

using std::chrono_literals::operator""s;

void FileState::report(const FileIo& io) noexcept {
    if (io.write && failed.exchange(true)) return;
    // A client may repeat a read that fails, so one line a second has to do.
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch() / 1s;
    if (!io.write && read_reported_.exchange(now) == now) return;
    log_if_possible([&] {
        LogLine(io.write ? spdlog::level::critical : spdlog::level::err)
            .with("device", id)
            .with("offset", io.offset)
            .log(
                "{}: {} {} bytes at offset {} of {} failed: {}{}", id,
                io.write ? "writing" : "reading", io.bytes, io.offset, file.path(),
                std::strerror(io.error),
                io.write ? "; nothing more is written to it, and its pages can still be read" : "");
    });
}

}  // namespace gpunbd::storage
