#include "config/local_time_text.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace gpunbd::config {

std::string local_time_text(std::int64_t seconds) {
    const std::time_t time = seconds;
    std::tm local{};
    return ::localtime_r(&time, &local) != nullptr ? fmt::format("{:%Y-%m-%d %H:%M:%S}", local)
                                                   : "-";
}

}  // namespace gpunbd::config
