#include "storage/devices/gpu/opened_files.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

// Sorted.
std::vector<int> descriptors_of(const std::string& path) {
    std::vector<int> found;
    std::error_code error;
    fs::directory_iterator open_files("/proc/self/fd", error);
    for (; !error && open_files != fs::directory_iterator(); open_files.increment(error)) {
        std::error_code closed_meanwhile;
        const fs::path& link = open_files->path();
        if (fs::read_symlink(link, closed_meanwhile) != path || closed_meanwhile) continue;
        found.push_back(std::stoi(link.filename()));
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace

OpenedFiles::OpenedFiles(std::string path)
    : path_(std::move(path)), before_(descriptors_of(path_)) {}

void OpenedFiles::end() {
    for (const int each : descriptors_of(path_)) {
        if (std::binary_search(before_.begin(), before_.end(), each)) continue;
        if (OwnedFd copy = OwnedFd::copy_of(each)) copies_.push_back(std::move(copy));
    }
}

}  // namespace gpunbd::storage
