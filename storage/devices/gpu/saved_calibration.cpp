#include "storage/devices/gpu/saved_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace gpunbd::storage {

namespace {

constexpr std::string_view heading = "gpunbd calibration 1";
constexpr std::uint32_t min_chunk = 64 << 10;   // bytes
constexpr std::uint32_t max_chunk = 64U << 20;  // bytes
constexpr std::size_t max_rows = 256;

// Splits a text into lines.
class Lines {
 public:
    explicit Lines(std::string_view text) : rest_(text) {}

    // The next line without its newline. Returns empty texts from the first incomplete line on.
    std::string_view line() {
        const std::size_t end = rest_.find('\n');
        const std::string_view found = rest_.substr(0, end);
        rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
        return end == std::string_view::npos ? std::string_view() : found;
    }
    bool at_end() const { return rest_.empty(); }

 private:
    std::string_view rest_;
};

// Removes one number and the space after it from the start of a line.
std::optional<std::uint32_t> take_number(std::string_view& line) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc{}) return std::nullopt;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (!line.empty()) {
        if (line[0] != ' ' || line.size() == 1) return std::nullopt;
        line.remove_prefix(1);
    }
    return value;
}

std::optional<Policy::Row> row_of(std::string_view line) {
    const auto direction = take_number(line);
    const auto loads = take_number(line);
    const auto up_to = take_number(line);
    const auto path = take_number(line);
    const bool sound = direction && *direction <= static_cast<unsigned>(Direction::zero) && loads &&
                       *loads != 0 && *loads <= Policy::any_load && up_to && *up_to != 0 && path &&
                       *path <= static_cast<unsigned>(PathKind::kernel) && line.empty();
    if (!sound) return std::nullopt;
    const bool reads = static_cast<Direction>(*direction) == Direction::read;
    const PathKind others = reads ? PathKind::mapping : PathKind::streaming_load;
    if (static_cast<PathKind>(*path) == others) return std::nullopt;
    return Policy::Row{static_cast<Direction>(*direction), static_cast<std::uint8_t>(*loads),
                       *up_to, static_cast<PathKind>(*path)};
}

}  // namespace

ChannelOptions tuned(const ChannelOptions& options, const Calibration& calibration) {
    ChannelOptions out = options;
    if (out.chunk_size == 0) {
        // One client may hold half of the staging memory, which should keep all its slots busy.
        const std::uint64_t max = out.pinned / 2 / out.slots;
        out.chunk_size =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(calibration.chunk_size, max));
    }
    out.policy = nullptr;
    return out;
}

std::string saved(const Calibration& calibration, std::string_view circumstances) {
    std::string text = fmt::format("{}\n{}\n{}\n", heading, circumstances, calibration.chunk_size);
    for (const Policy::Row& row : calibration.policy.rows) {
        text += fmt::format("{} {} {} {}\n", static_cast<unsigned>(row.direction), row.loads,
                            row.up_to, static_cast<unsigned>(row.path));
    }
    return text;
}

std::optional<Calibration> read_calibration(std::string_view text, std::string_view circumstances) {
    Lines lines(text);
    if (lines.line() != heading || lines.line() != circumstances) return std::nullopt;
    std::string_view line = lines.line();
    const auto chunk = take_number(line);
    const bool power_of_two = chunk && (*chunk & (*chunk - 1)) == 0;
    if (!power_of_two || !line.empty() || *chunk < min_chunk || *chunk > max_chunk) {
        return std::nullopt;
    }
    Calibration found{.policy = {}, .chunk_size = *chunk};
    while (!lines.at_end()) {
        const auto row = row_of(lines.line());
        if (!row || found.policy.rows.size() == max_rows) return std::nullopt;
        found.policy.rows.push_back(*row);
    }
    // Accept only what saved() writes.
    if (found.policy.rows.empty() || saved(found, circumstances) != text) return std::nullopt;
    return found;
}

}  // namespace gpunbd::storage
