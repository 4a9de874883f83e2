#include "server/tools/status/event_reader.hpp"

#include <utility>

namespace gpunbd::status {

Expected<std::vector<EventReader::Event>, Failure> EventReader::take(std::string_view bytes) {
    std::vector<Event> out;
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        line_ += bytes.substr(0, end);
        if (line_.size() + event_.data.size() > longest_) return Failure{"an event does not end"};
        if (end == std::string_view::npos) break;
        bytes.remove_prefix(end + 1);
        if (line_.ends_with('\r')) line_.pop_back();
        take_line(std::exchange(line_, {}), out);
    }
    return out;
}

void EventReader::take_line(std::string_view line, std::vector<Event>& out) {
    if (line.empty()) {
        if (!event_.data.empty()) out.push_back(event_);
        event_ = {};
        return;
    }
    const std::size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value =
        colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "event") event_.name = value;
    if (field != "data") return;
    if (!event_.data.empty()) event_.data += '\n';
    event_.data += value;
}

}  // namespace gpunbd::status
