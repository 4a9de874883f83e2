#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "config/schema_reader.hpp"
#include "config/spill_keys.hpp"

namespace gpunbd::config {

namespace {

bool names_device(std::string_view key) {
    return !is_spill_only(key) && std::holds_alternative<std::string>(rules::spill_id(key));
}

// The forms of ids are known for messages. As keys they are refused, unless they are ids.
std::vector<std::string_view> known_keys(const YamlNode& item) {
    std::vector<std::string_view> known;
    for (const DriverInfo& driver : device_drivers()) {
        known.push_back(driver.spill_only ? driver.scheme : driver.form);
    }
    known.insert(known.end(), {"size", "encrypt"});
    for (const YamlNode::Entry& entry : item.entries) {
        const std::string_view key = entry.key->text;
        const bool is_new = std::ranges::find(known, key) == known.end();
        if (entry.key->kind == YamlNode::Kind::scalar && is_new && names_device(key)) {
            known.push_back(key);
        }
    }
    return known;
}

}  // namespace

std::optional<Reader::Identity> Reader::read(Report& report, const YamlValue& given,
                                             SpillOptions& spill) {
    Reader reader(report, YamlMap(report, given, known_keys(*given.node)));
    std::vector<std::string_view> devices = reader.map().keys();
    std::erase_if(devices, [](std::string_view key) { return key == "size" || key == "encrypt"; });
    if (devices.empty()) {
        const bool has_unknown_key = given.node->entries.size() > reader.map().keys().size();
        const DriverInfo& first = device_drivers().front();
        if (!has_unknown_key) {
            reader.map().require(first.form, fmt::format("{}: 64G", first.example));
        }
        return std::nullopt;
    }
    if (devices.size() > 1) {
        reader.add(devices[1], "is a second device; begin the item of each device with '- '");
        return std::nullopt;
    }
    const std::string_view key = devices.front();
    const bool is_file = is_spill_only(key);
    std::string id(key);
    if (is_file) {
        std::string file;
        reader.value(key, file, text(rules::file_path));
        reader.value("size", spill.size, spill_size(), {.example = "size: 200G"});
        reader.value("encrypt", spill.encrypt, boolean());
        if (!reader.good(key)) return std::nullopt;
        id = fmt::format("{}:{}", key, file);
    }
    auto checked = rules::spill_id(id);
    if (const auto* wrong = std::get_if<rules::Wrong>(&checked)) {
        reader.add(key, wrong->what);
        return std::nullopt;
    }
    spill.device = std::get<std::string>(std::move(checked));
    if (!is_file) {
        reader.value(key, spill.size, spill_size());
        for (const std::string_view other : {"size", "encrypt"}) {
            if (reader.map().find(other)) reader.add(other, "is for files; leave it out");
        }
    }
    reader.identify(key, spill.device, in_quotes(spill.device));
    return std::move(reader.identity);
}

}  // namespace gpunbd::config
