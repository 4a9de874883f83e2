// Creates several files in a folder atomically: all or none.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

// Files are written to a staging folder and then moved into place. An existing file is replaced
// only by replace(). Errors are std::runtime_error, with a message for the user.
class NewFiles {
 public:
    // Creates `folder` with mode 0700 if it does not exist; its parent must exist.
    explicit NewFiles(std::string folder);
    ~NewFiles();
    NewFiles(const NewFiles&) = delete;
    NewFiles& operator=(const NewFiles&) = delete;

    // `path` is relative to the folder; missing subfolders are created.
    void add(const std::string& path, std::string_view content, mode_t mode);
    // As add(), but may replace an existing file.
    void replace(const std::string& path, std::string_view content, mode_t mode);
    // Moves all files into place. Throws on failure, and then no file is in place.
    void publish();

 private:
    struct File {
        std::string path;
        bool replaces = false;
    };

    void write(const std::string& path, std::string_view content, mode_t mode);
    void make_folders(const std::string& root, const std::string& path,
                      std::vector<std::string>* made);
    void move_there(const File& file);
    std::string staged(const std::string& path) const { return staging_ + "/" + path; }
    std::string placed(const std::string& path) const { return folder_ + "/" + path; }

    const std::string folder_;
    bool existed_ = false;  // the folder existed before
    std::string staging_;   // a folder that is removed at the end
    std::vector<File> files_;
};

}  // namespace gpunbd::server
