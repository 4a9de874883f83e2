// Exports as plain values, which a test may change: "disk" is also the default export, "ro" is
// read-only, and "coarse" has its own block sizes and a cache.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/export_info.hpp"

namespace gpunbd::protocol::test {

class PlainExportDirectory : public ExportDirectory {
 public:
    PlainExportDirectory()
        : PlainExportDirectory({{.name = "disk",
                                 .description = "a disk",
                                 .instance = "0123456789abcdef0123456789abcdef",
                                 .size = 0x10000000},
                                {.name = "ro", .size = 4096, .read_only = true},
                                {.name = "coarse",
                                 .size = 1 << 20,
                                 .cached = true,
                                 .minimum_block = 512,
                                 .preferred_block = 8192,
                                 .maximum_payload = 1 << 20}}) {}
    explicit PlainExportDirectory(std::vector<ExportInfo> all) : exports(std::move(all)) {}

    Listing list() const override {
        auto names = std::make_shared<std::vector<std::string>>();
        for (const ExportInfo& info : exports) names->push_back(info.name);
        return {std::move(names)};
    }
    std::optional<ExportInfo> next(Listing& listing) const override {
        while (listing.next != listing.names->size()) {
            if (auto info = named((*listing.names)[listing.next++])) return info;
        }
        return std::nullopt;
    }

    std::optional<ExportInfo> find(std::string_view name) const override {
        if (name.empty() && !exports.empty()) return exports.front();
        return named(name);
    }

    std::vector<ExportInfo> exports;

 private:
    std::optional<ExportInfo> named(std::string_view name) const {
        for (const ExportInfo& info : exports) {
            if (info.name == name) return info;
        }
        return std::nullopt;
    }
};

}  // namespace gpunbd::protocol::test
