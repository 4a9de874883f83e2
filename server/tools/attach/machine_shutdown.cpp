#include "server/tools/attach/machine_shutdown.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

namespace gpunbd::attach {

bool machine_is_shutting_down() {
    const auto close = [](std::FILE* file) { ::pclose(file); };
    const std::unique_ptr<std::FILE, decltype(close)> answer(
        ::popen("systemctl is-system-running 2>/dev/null", "re"), close);
    std::array<char, 64> line{};
    if (!answer || std::fgets(line.data(), line.size(), answer.get()) == nullptr) return false;
    return std::string_view(line.data()) == "stopping\n";
}

}  // namespace gpunbd::attach
