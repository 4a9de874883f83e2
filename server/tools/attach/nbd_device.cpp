#include "server/tools/attach/nbd_device.hpp"

#include <fmt/format.h>

#include "config/quote.hpp"

namespace gpunbd::attach {

config::rules::Checked<std::uint32_t> nbd_device(std::string_view text) {
    constexpr std::string_view start = "/dev/nbd";
    constexpr std::uint64_t last = (1U << 20) - 1;  // the limit of the kernel's minor numbers
    if (text.starts_with(start)) {
        const auto number = config::rules::integer(text.substr(start.size()), {0, last});
        if (const auto* value = std::get_if<std::uint64_t>(&number)) {
            return static_cast<std::uint32_t>(*value);
        }
    }
    return config::rules::Wrong{fmt::format("{} is not an NBD device; write for example /dev/nbd0",
                                            config::in_quotes(text))};
}

}  // namespace gpunbd::attach
