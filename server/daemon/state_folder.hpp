// The exports that outlive the server by name: one YAML file for each in the folder of the key
// `state`. The server alone writes there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/base/expected.hpp"

namespace gpunbd::server {

class StateFolder {
 public:
    explicit StateFolder(std::string path) : path_(std::move(path)) {}

    // All exports of the folder, or all problems. Creates the folder if it is missing, and finishes
    // a rename() during which the server was killed.
    struct Exports {
        std::vector<config::ExportOptions> exports = {};
        std::vector<config::Problem> problems = {};
    };
    Exports read() const;
    // Replaces the file of the export atomically. Both block until the file is on the disk.
    Expected<void> write(const config::ExportOptions& options) const;
    Expected<void> remove(const std::string& name) const;
    // Replaces the file of an export by one with another name. The folder has one of the two at any
    // time, never both. After a problem it has the earlier one.
    Expected<void> rename(const config::ExportOptions& from, const config::ExportOptions& to) const;

    // "a/b" is in a%2Fb.yaml.
    static std::string file_name(std::string_view name);

 private:
    // Replaces `file`. `comments`: before the keys.
    Expected<void> replace(const std::string& file, const std::string& comments,
                           const config::ExportOptions& options) const;
    std::string failed() const;  // the text of errno

    std::string path_;
};

// Adds the exports of the folder of `options.state`, if any. Returns the problems.
std::vector<config::Problem> add_persistent_exports(config::Options& options);

}  // namespace gpunbd::server
